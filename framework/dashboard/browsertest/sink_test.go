package browsertest

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

func TestASinkIsPausedWithAReasonAndResumed(t *testing.T) {
	t.Parallel()
	s := newSite(t, withShop(t))
	s.publish(t, 5, "order.placed")
	s.eventually(t, 1, `SELECT count(DISTINCT sink) FROM outbox_cursors WHERE sink = 'mail'`)
	b := newTab(t, s.url)
	b.open("/")
	b.sees("mail")
	b.open("/sinks/mail")
	b.do(chromedp.SendKeys(`#reason`, `<b>OPS-7</b>`, chromedp.ByQuery), chromedp.Click(`//button[text()="Pause …"]`), chromedp.WaitVisible(`//button[text()="Pause"]`))
	require.Contains(t, b.text(), "Pause mail?")
	require.Contains(t, b.text(), "<b>OPS-7</b>")
	b.shoot("confirm")
	s.eventually(t, 0, `SELECT count(*) FROM outbox_cursors WHERE paused`)
	b.do(chromedp.Click(`//button[text()="Pause"]`), chromedp.WaitVisible(`//button[text()="Resume …"]`))
	require.Contains(t, b.text(), "Paused by ada")
	require.Contains(t, b.text(), "<b>OPS-7</b>")
	var id string
	require.NoError(t, s.db.QueryRowContext(t.Context(), `SELECT id FROM outbox_actions WHERE action = 'pause'`).Scan(&id))
	require.Contains(t, b.text(), id, "the flash names the action")
	b.shoot("sink-paused")
	b.do(press("Resume …"), chromedp.Click(`//button[text()="Resume"]`), chromedp.WaitVisible(`//button[text()="Pause …"]`))
	s.eventually(t, 0, `SELECT count(*) FROM outbox_cursors WHERE paused`)
	require.NotContains(t, b.text(), "Paused by")
}

// press clicks a button of a live page, which may replace the button between finding and clicking it.
func press(button string) chromedp.Action {
	const first = 9 // FIRST_ORDERED_NODE_TYPE
	return chromedp.Evaluate(fmt.Sprintf(`document.evaluate('//button[text()="%s"]', document, null, %d).singleNodeValue.click()`, button, first), nil)
}

func TestAReplayIsPreviewedAndItsNumberTyped(t *testing.T) {
	t.Parallel()
	s := newSite(t, withShop(t))
	s.publish(t, 150, "order.placed")
	s.publish(t, 7, "order.shipped")
	s.eventually(t, 157, `SELECT count(*) FROM outbox_receipts WHERE sink = 'mail'`)
	b := newTab(t, s.url)
	b.open("/sinks/mail/replay")
	b.do(chromedp.SendKeys(`input[name=since]`, "yesterday", chromedp.ByQuery), chromedp.Click(`//button[text()="Preview"]`), chromedp.WaitVisible(`.notice.bad`, chromedp.ByQuery))
	require.Contains(t, b.text(), "since is not a time")
	b.open("/sinks/mail/replay")
	b.do(chromedp.SendKeys(`input[name=type]`, "order.placed", chromedp.ByQuery), chromedp.Click(`//button[text()="Preview"]`), chromedp.WaitVisible(`#typed`, chromedp.ByQuery))
	var examples int
	b.do(chromedp.Evaluate(`document.querySelectorAll("tbody tr").length`, &examples))
	require.Equal(t, 5, examples)
	require.Contains(t, b.text(), "Type 150 to confirm")
	b.shoot("replay")
	b.do(chromedp.SendKeys(`#typed`, "149", chromedp.ByQuery), chromedp.Click(`button.danger`, chromedp.ByQuery), chromedp.WaitVisible(`.notice.bad`, chromedp.ByQuery))
	s.eventually(t, 0, `SELECT count(*) FROM outbox_actions`)
	s.publish(t, 10, "order.placed") // published after the preview, so not replayed
	s.eventually(t, 167, `SELECT count(*) FROM outbox_receipts WHERE sink = 'mail'`)
	b.do(chromedp.SendKeys(`#typed`, "150", chromedp.ByQuery), chromedp.Click(`button.danger`, chromedp.ByQuery), chromedp.WaitVisible(`h2`, chromedp.ByQuery), chromedp.WaitVisible(`//p[contains(., "replay by ada")]`))
	b.sees("done, 150 of 150")
	s.eventually(t, 1, `SELECT count(*) FROM outbox_actions WHERE action = 'replay' AND count = 150 AND ended_at IS NOT NULL`)
}

func TestPagesAreWorkedByKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t, withSinks(t, "billing", "mail"))
	b := newTab(t, s.url)
	b.open("/")
	focus := func() (text string) {
		b.do(chromedp.Evaluate(`document.activeElement.id || document.activeElement.textContent`, &text))
		return text
	}
	shown := func() (open bool) {
		b.do(chromedp.Evaluate(`document.getElementById("keys").open`, &open))
		return open
	}
	for _, step := range []struct{ key, focus string }{{"j", "billing"}, {"j", "mail"}, {"j", "mail"}, {"k", "billing"}, {"/", "find"}} {
		b.do(chromedp.KeyEvent(step.key))
		require.Equal(t, step.focus, focus(), step.key)
	}
	b.do(chromedp.KeyEvent("jj?")) // typed into the field
	require.Equal(t, "find", focus())
	b.do(chromedp.KeyEvent(kb.Escape))
	require.NotEqual(t, "find", focus())
	b.do(chromedp.KeyEvent("?"))
	require.True(t, shown())
	b.shoot("keys")
	b.do(chromedp.KeyEvent(kb.Escape))
	require.False(t, shown())
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`//h2[text()="Lanes"]`))
	for key, heading := range map[string]string{"o": "Overview", "p": "Parked", "a": "Actions", "d": "Doctor", "c": "Configuration"} {
		b.awaits(`document.readyState === "complete"`) // before, no script listens to keys
		b.do(chromedp.KeyEvent("g"), chromedp.KeyEvent(key), chromedp.WaitVisible(`//h1[text()="`+heading+`"]`))
	}
	b.open("/")
	b.do(chromedp.KeyEvent(kb.Tab))
	var skip string
	b.do(chromedp.Evaluate(`document.activeElement.className`, &skip))
	require.Equal(t, "skip", skip)
}
