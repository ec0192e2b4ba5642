/** Plain values as YAML that people read; it is shown, never sent. */

export function asYaml(value: unknown, indent = ""): string {
  if (Array.isArray(value)) {
    return value.length === 0 ? "[]" : value.map((each) => `${indent}- ${asYaml(each, `${indent}  `).trimStart()}`).join("\n");
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value);
    if (entries.length === 0) return "{}";
    return entries.map(([key, inner]) => `${indent}${scalar(key)}:${after(inner, indent)}`).join("\n");
  }
  return scalar(value);
}

function after(value: unknown, indent: string): string {
  if (typeof value === "string" && value.includes("\n")) {
    return ` |\n${value.trimEnd().split("\n").map((line) => `${indent}  ${line}`).join("\n")}`;
  }
  const nested = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  return nested ? `\n${asYaml(value, `${indent}  `)}` : ` ${asYaml(value)}`;
}

function scalar(value: unknown): string {
  if (typeof value !== "string") return String(value);
  const plain = /^[A-Za-z_./$][\w ./${}()*+<>=-]*$/.test(value) && !/^(true|false|null|yes|no|on|off)$/i.test(value) && !value.endsWith(" ");
  return plain ? value : JSON.stringify(value);
}
