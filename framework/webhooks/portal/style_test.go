package portal_test

import (
	"testing"

	"github.com/waybill-go/waybill/framework/internal/look"
	"github.com/waybill-go/waybill/framework/internal/look/looktest"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
)

// Each class of the style sheet is in a template.
func TestEveryClassOfTheStyleIsUsed(t *testing.T) {
	t.Parallel()
	looktest.UsesAll(t, look.Style(look.Accent, look.AccentDark, portal.Style), portal.Templates)
}
