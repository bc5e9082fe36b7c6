port="PORT_$1"
export WAYBILL_OBSERVE_ADDRESS="127.0.0.1:${!port}" WAYBILL_FORWARDER_NAME="forwarder-$1"
exec waybill forward -c waybill.yaml
