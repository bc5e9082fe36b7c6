exec waybill forward -c waybill.yaml
