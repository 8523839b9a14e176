// Typical code of a user of the generated types. It compiles only if they match the requests and responses of the API.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const client = createClient<paths>({ baseUrl: "http://127.0.0.1:8080" });

export async function rerun(id: string): Promise<string> {
  const { data, error } = await client.POST("/api/v1/workflow/executions/{id}/rerun", {
    params: { path: { id } },
    body: { from: "failed", version: "same", resolve: { pay: "done" } },
  });
  if (error) {
    throw new Error(error.code);
  }
  return data.executionId;
}

// The discriminator distinguishes the reasons, and every reason has its own text.
export function since(reason: components["schemas"]["WaitingReason"]): string {
  switch (reason.reason) {
    case "delayed_until":
      return reason.availableAt;
    case "workspace_full":
      return `${reason.running} of ${reason.limit}`;
    default:
      return reason.message;
  }
}
