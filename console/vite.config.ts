import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const modern = ["chrome123", "firefox121", "safari17.5"];

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/penstock/control/console_dist",
    emptyOutDir: true,
    target: modern,
    cssTarget: modern,
    // The policy of the pages allows no data: addresses for scripts and styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
  server: { host: "127.0.0.1", proxy: { "/api": "http://127.0.0.1:8080" } },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
