"use strict";
// For recording from outside. Ordinary OpenTelemetry, loaded before the service (`node --require ./tracing.js server.js`):
// the incoming `traceparent` becomes a comment on every statement. Spans go nowhere here.

const { registerInstrumentations } = require("@opentelemetry/instrumentation");
const { ExpressInstrumentation } = require("@opentelemetry/instrumentation-express");
const { HttpInstrumentation } = require("@opentelemetry/instrumentation-http");
const { PgInstrumentation } = require("@opentelemetry/instrumentation-pg");
const { NodeTracerProvider } = require("@opentelemetry/sdk-trace-node");

new NodeTracerProvider().register();
registerInstrumentations({
  instrumentations: [
    new HttpInstrumentation(),
    new ExpressInstrumentation(),
    new PgInstrumentation({ addSqlCommenterCommentToQueries: true }),
  ],
});
