// A forward pass of plain layers in JavaScript: what onelip.fuse leaves of a network. All arithmetic is in double
// precision on the stored weights, which is what a float64 certificate promises something about.
const onelipNetwork = (() => {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const half = (bits) => {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : (2 ** -14 * fraction) / 1024);
  };
  const halves = (text) => Float64Array.from(new Uint16Array(bytes(text).buffer), half);

  // Images are arrays of channels within pixels within rows: {side, channels, values}.
  const unshuffle = ({ side, channels, values }, factor) => {
    const small = side / factor, wide = channels * factor * factor, result = new Float64Array(values.length);
    for (let row = 0; row < side; row += 1)
      for (let column = 0; column < side; column += 1)
        for (let channel = 0; channel < channels; channel += 1) {
          const pixel = Math.floor(row / factor) * small + Math.floor(column / factor);
          const place = channel * factor * factor + (row % factor) * factor + (column % factor);
          result[pixel * wide + place] = values[(row * side + column) * channels + channel];
        }
    return { side: small, channels: wide, values: result };
  };

  // Circular convolution of an odd kernel; weights are taps x outputs x inputs.
  const convolution = ({ side, channels, values }, { weight, bias, kernel }) => {
    const outputs = bias.length, result = new Float64Array(side * side * outputs), reach = (kernel - 1) / 2;
    for (let pixel = 0; pixel < side * side; pixel += 1) result.set(bias, pixel * outputs);
    for (let tap = 0; tap < kernel * kernel; tap += 1)
      for (let row = 0; row < side; row += 1)
        for (let column = 0; column < side; column += 1) {
          const up = (row + Math.floor(tap / kernel) - reach + side) % side, along = (column + (tap % kernel) - reach + side) % side;
          const from = (up * side + along) * channels, to = (row * side + column) * outputs;
          for (let output = 0; output < outputs; output += 1) {
            let sum = 0;
            for (let at = (tap * outputs + output) * channels, input = 0; input < channels; input += 1)
              sum += weight[at + input] * values[from + input];
            result[to + output] += sum;
          }
        }
    return { side, channels: outputs, values: result };
  };

  // The larger of each pair of channels i and i + c/2, then the smaller.
  const maxmin = ({ side, channels, values }) => {
    const result = new Float64Array(values.length), pairs = channels / 2;
    for (let start = 0; start < values.length; start += channels)
      for (let pair = start; pair < start + pairs; pair += 1) {
        result[pair] = Math.max(values[pair], values[pair + pairs]);
        result[pair + pairs] = Math.min(values[pair], values[pair + pairs]);
      }
    return { side, channels, values: result };
  };

  const dense = ({ values }, { weight, bias }) => ({
    values: bias.map((start, output) => values.reduce((sum, value, index) => sum + weight[output * values.length + index] * value, start)),
  });

  const kinds = { unshuffle: (x, layer) => unshuffle(x, layer.factor), convolution, maxmin, dense };
  const read = (layer) => ({ ...layer, ...(layer.weight && { weight: halves(layer.weight), bias: halves(layer.bias) }) });
  const network = (layers) => {
    const steps = layers.map(read);
    return (image) => [...steps.reduce((x, layer) => kinds[layer.kind](x, layer), image).values];
  };
  return { bytes, halves, network };
})();
