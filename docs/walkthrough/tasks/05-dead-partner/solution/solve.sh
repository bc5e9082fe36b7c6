waybill status --json > status.json
python3 - > answer.json <<'PYTHON'
import json

status = json.load(open("status.json"))
(trouble,) = status["troubles"]
pending = sum(c["pending"] for c in status["cursors"] if c["sink"] == trouble["sink"])
print(json.dumps({"sink": trouble["sink"], "since": trouble["since"], "why": trouble["cause"], "pending": pending}))
PYTHON
sed -i.old 's/BILLING_URL/NEW_URL/' waybill.yaml
waybill config check
kill -HUP "$FORWARDER_PID"
