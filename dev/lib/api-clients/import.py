"""Imports every module of the generated client, and compares its operations with the description's.

    python import.py OPENAPI_JSON CLIENT_FOLDER
"""

import importlib
import json
import pkgutil
import sys

description, folder = sys.argv[1:]
sys.path.insert(0, folder)
client = importlib.import_module("forebay_client")
modules = [module.name for module in pkgutil.walk_packages(client.__path__, "forebay_client.")]
for module in modules:
    importlib.import_module(module)

with open(description, encoding="utf-8") as file:
    paths = json.load(file)["paths"]
expected = {operation["operationId"] for operations in paths.values() for operation in operations.values()}
ours = (name for name in modules if name.startswith("forebay_client.api.") and name.count(".") == 3)
generated = {name.rsplit(".", 1)[1] for name in ours}
if expected != generated:
    sys.exit(f"dropped: {sorted(expected - generated)}; not in the description: {sorted(generated - expected)}")
print(f"{len(generated)} operations, {len(modules)} modules")
