-- POST three random items as the items of a new user.
local ids = {}
for line in io.lines(os.getenv("LOAD_ITEMS")) do ids[#ids + 1] = line end
local path = os.getenv("LOAD_PATH")
math.randomseed(tonumber(os.getenv("LOAD_SEED") or "0"))
wrk.headers["Content-Type"] = "application/json"
function request()
  local a, b, c = ids[math.random(#ids)], ids[math.random(#ids)], ids[math.random(#ids)]
  return wrk.format("POST", path, nil, string.format('{"items":["%s","%s","%s"],"k":20}', a, b, c))
end
done = dofile(os.getenv("LOAD_REPORT"))
