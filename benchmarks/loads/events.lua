-- POST batches of ten events, each with a key of its own.
local users, items = {}, {}
for line in io.lines(os.getenv("LOAD_USERS")) do users[#users + 1] = line end
for line in io.lines(os.getenv("LOAD_ITEMS")) do items[#items + 1] = line end
local path, prefix, sent = os.getenv("LOAD_PATH"), os.getenv("LOAD_KEY"), 0
math.randomseed(tonumber(os.getenv("LOAD_SEED") or "0"))
wrk.headers["Content-Type"] = "application/json"
function request()
  local rows = {}
  for n = 1, 10 do
    sent = sent + 1
    rows[n] = string.format('{"user":"%s","item":"%s","kind":"like","key":"%s-%d"}',
      users[math.random(#users)], items[math.random(#items)], prefix, sent)
  end
  return wrk.format("POST", path, nil, '{"events":[' .. table.concat(rows, ",") .. "]}")
end
done = dofile(os.getenv("LOAD_REPORT"))
