package notification

// The types of Waybill's alerts; package alerts publishes them.
const (
	AlertRaised  = "waybill.alert.raised"
	AlertCleared = "waybill.alert.cleared"
)

// IsAlert reports whether a type is one of Waybill's alerts.
func IsAlert(typ string) bool { return typ == AlertRaised || typ == AlertCleared }
