waybill bench sweep --database "$DATABASE_URL" --sinks http --delay 20ms --threshold 4,16,64 --runs 1 --rows 500 --json > result.json
python3 - > answer.json <<'PYTHON'
import json

cases = json.load(open("result.json"))["scenarios"][0]["cases"]
figures = [{m["name"]: m["median"] for m in case["metrics"]} for case in cases]
best = max(f["throughput"] for f in figures)
answer = min((f for f in figures if f["throughput"] >= 0.8 * best), key=lambda f: f["threshold"])
print(json.dumps({"threshold": answer["threshold"], "per_second": answer["throughput"]}))
PYTHON
