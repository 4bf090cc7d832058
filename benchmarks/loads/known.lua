-- GET the recommendations of known users, drawn at random from a file of ids.
local ids = {}
for line in io.lines(os.getenv("LOAD_USERS")) do ids[#ids + 1] = line end
local pause, path = tonumber(os.getenv("LOAD_PAUSE") or "0"), os.getenv("LOAD_PATH")
math.randomseed(tonumber(os.getenv("LOAD_SEED") or "0"))
if pause > 0 then
  function delay() return pause end
end
function request()
  return wrk.format("GET", path .. ids[math.random(#ids)] .. "?k=20")
end
done = dofile(os.getenv("LOAD_REPORT"))
