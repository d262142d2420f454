"""Serves a model file over llama.cpp's OpenAI-compatible HTTP server until standard input ends."""

import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"smollm2"}
params.port = int(sys.argv[2])
params.n_ctx = 8192
params.n_parallel = 1
params.verbosity = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
