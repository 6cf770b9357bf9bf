"""The generated files are those of the document that the daemon serves."""

import json
import unittest
import urllib.request

from support import ROOT, daemon

import generate


class Generated(unittest.TestCase):
    def test_files_are_up_to_date(self) -> None:
        with urllib.request.urlopen(f"{daemon().url}/v1/openapi.json", timeout=30) as answer:
            document = json.load(answer)
        for name, text in generate.generate(document).items():
            with self.subTest(name):
                kept = (ROOT / "src" / "phalanx" / name).read_text(encoding="utf-8")
                self.assertEqual(kept, text, "run python3 generate.py with the address of the daemon")

    def test_every_operation_has_a_method(self) -> None:
        with urllib.request.urlopen(f"{daemon().url}/v1/openapi.json", timeout=30) as answer:
            document = json.load(answer)
        from phalanx import Api

        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if method != "parameters":
                    self.assertTrue(hasattr(Api, generate.snake(operation["operationId"])), path)

    def test_names(self) -> None:
        self.assertEqual(generate.snake("listJobEvents"), "list_job_events")
        self.assertEqual(generate.type_of({"type": ["integer", "null"]}), "Union[int, None]")
        self.assertEqual(generate.type_of({"$ref": "#/components/schemas/JobFile/$defs/X"}), "Any")
        both = {"properties": {"class": {"type": "string"}, "b": {"type": "integer"}}, "required": ["class"]}
        text = generate.typed_dict("Made", both)
        self.assertIn('_MadeAlways = TypedDict("_MadeAlways", {', text)
        self.assertIn("class Made(_MadeAlways, _MadeMaybe):", text)


if __name__ == "__main__":
    unittest.main()
