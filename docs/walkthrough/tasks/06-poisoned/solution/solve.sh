waybill parked list --sink partner --state dead
waybill parked skip --sink partner --error 'cannot read' --yes
