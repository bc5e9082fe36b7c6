package browsertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

func TestPagesWorkWithoutScripts(t *testing.T) {
	t.Parallel()
	s := newSite(t, withShop(t))
	s.publish(t, 3, "order.placed")
	s.eventually(t, 3, `SELECT count(*) FROM outbox_receipts WHERE sink = 'mail'`)
	b := newTab(t, s.url)
	b.open("/")
	b.sees("mail") // reloads until the page shows it
	b.do(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(b.base+"/"))
	b.focus(`a[href="/sinks/mail"]`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.focus(`input[name=reason]`)
	b.do(chromedp.KeyEvent("OPS-1"), chromedp.KeyEvent(kb.Enter))
	b.focus(`button.danger`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.has(`action="/sinks/mail/resume"`, "by ada", "OPS-1")
	s.eventually(t, 4, `SELECT count(*) FROM outbox_cursors WHERE sink = 'mail' AND paused`)
	b.focus(`a[href="/sinks/mail/replay"]`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.focus(`input[name=type]`)
	b.do(chromedp.KeyEvent("order.placed"), chromedp.KeyEvent(kb.Enter))
	b.has("Replay 3")
}

// focus waits for an element and focuses it, without scripts.
func (b *tab) focus(selector string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		return chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
			root, err := dom.GetDocument().Do(ctx)
			if err != nil {
				return err
			}
			found, err := dom.QuerySelector(root.NodeID, selector).Do(ctx)
			if err != nil {
				return err
			}
			return dom.Focus().WithNodeID(found).Do(ctx)
		})) == nil
	}, patience, 100*time.Millisecond, selector)
}

// has waits until the page's source contains texts, without scripts.
func (b *tab) has(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		require.Eventually(b.t, func() bool {
			ctx, cancel := context.WithTimeout(b.ctx, patience)
			defer cancel()
			var html string
			_ = chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error { // between two pages there is no source
				root, err := dom.GetDocument().Do(ctx)
				if err == nil {
					html, err = dom.GetOuterHTML().WithNodeID(root.NodeID).Do(ctx)
				}
				return err
			}))
			return strings.Contains(html, text)
		}, patience, 100*time.Millisecond, text)
	}
}
