waybill replay --sink search --since "$FROM" --until "$UNTIL" --yes
