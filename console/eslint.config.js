import js from "@eslint/js";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "src/api/schema.ts"] },
  js.configs.recommended,
  ...tseslint.configs.strict,
  reactHooks.configs.flat.recommended,
  {
    files: ["src/**/*.{ts,tsx}"],
    rules: {
      // Names and logs come from strangers: they are text, never markup.
      "no-restricted-syntax": [
        "error",
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "Show text, not markup." },
        { selector: "AssignmentExpression[left.property.name=/^(inner|outer)HTML$/]", message: "Show text, not markup." },
      ],
      eqeqeq: "error",
    },
  },
);
