"""Export a trained network, and serve predictions with radii over HTTP.

python examples/export_and_serve.py            # serves on port 8000 until Ctrl-C
python examples/export_and_serve.py --once     # answers one request of its own and ends
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.request import urlopen

import torch

import onelip
from onelip.bench.data import load
from onelip.certification import Certifier

data = load("cifar10-mini")
images = data.test_images / 255 - torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)

# The file holds plain layers with fixed weights. It is run and compared with the model before it gets its name.
onelip.export_torch(onelip.load_model("cifar10-fast-2m"), "classifier.pt2")

# The server needs this file alone. A float32 radius holds for the float32 program that answers.
program = torch.export.load("classifier.pt2").module()
certifier = Certifier(program, (3, 32, 32), arithmetic="float32")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """/17 answers for test image 17."""
        name = self.path.strip("/")
        if not name.isdigit() or int(name) >= len(images):
            self.send_error(404, f"give the number of an image, 0 to {len(images) - 1}")
            return
        certificate = certifier(images[int(name)][None])
        answer = {"class": int(certificate.predictions[0]), "radius": float(certificate.radii[0])}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


once = "--once" in sys.argv
server = HTTPServer(("127.0.0.1", 0 if once else 8000), Handler)
address = f"http://127.0.0.1:{server.server_port}/17"
print(f"open {address}")
if once:
    Thread(target=server.handle_request, daemon=True).start()
    print(urlopen(address).read().decode())
else:
    server.serve_forever()
