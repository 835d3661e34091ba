"""The benchmark: data, training, search, measurements, studies, reports and the command line.

It needs the extra `bench` (`pip install "onelip[bench]"`). It imports the library; the library never imports it.
"""
