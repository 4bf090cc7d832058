-- Return wrk's function `done`, which writes one line of JSON.
return function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"seconds":%.3f,"p50":%.3f,"p90":%.3f,"p99":%.3f,"max":%.3f,"statuses":%d,"sockets":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(90) / 1e3,
    latency:percentile(99) / 1e3, latency.max / 1e3, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
