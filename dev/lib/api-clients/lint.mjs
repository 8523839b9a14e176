// Lints an API description with Redocly's strict rules: prints each problem, and exits with 1 if there is one.
import { createConfig, lint } from "@redocly/openapi-core";

const rules = {
  // `default` describes every error response, with one body for all.
  "operation-4xx-response": "off",
  // A literal segment takes precedence over a parameter, in the service and in every client.
  "no-ambiguous-paths": "off",
};
const config = await createConfig({ extends: ["recommended-strict"], rules });
const problems = await lint({ ref: process.argv[2], config });
for (const { severity, ruleId, message, location } of problems) {
  console.log(`${severity} ${ruleId}: ${message} (${location[0]?.pointer ?? "the document"})`);
}
process.exitCode = problems.length > 0 ? 1 : 0;
