package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// batchBytes is how many bytes are gathered for one write to stdin.
	batchBytes = 32 << 10

	// maxLogLine is how many bytes of a line of stderr are logged.
	maxLogLine = 4 << 10
)

// writeStdin writes deliveries and cancellations to stdin until stopWrite is closed. Only this
// goroutine blocks if the program does not read.
func (c *child) writeStdin() {
	hello, err := encodeHello(c.sink.name, c.sink.config.MaxLineBytes)
	if err == nil {
		_, err = c.stdin.Write(hello)
	}
	var (
		batch   bytes.Buffer
		inBatch []*pending
	)
	for err == nil {
		batch.Reset()
		inBatch = inBatch[:0]
		select {
		case <-c.stopWrite:
			return
		case p := <-c.outgoing:
			inBatch = append(inBatch, p)
			batch.Write(p.line)
			inBatch = c.gather(&batch, inBatch)
		case <-c.wake:
		}
		c.writeCancellations(&batch)
		if _, err = c.stdin.Write(batch.Bytes()); err == nil {
			c.markWritten(inBatch)
		}
		if batch.Cap() > 8*batchBytes {
			batch = bytes.Buffer{} // one huge line must not stay forever
		}
	}
	c.report(fmt.Errorf("%w: it %w of stdin: %w", ErrProtocol, errHungUp, err))
}

// gather adds the deliveries that are waiting now to the batch, up to batchBytes.
func (c *child) gather(batch *bytes.Buffer, inBatch []*pending) []*pending {
	for batch.Len() < batchBytes {
		select {
		case p := <-c.outgoing:
			inBatch = append(inBatch, p)
			batch.Write(p.line)
		default:
			return inBatch
		}
	}
	return inBatch
}

// writeCancellations adds the lines of cancelled deliveries to the batch. A delivery is
// cancelled only after this goroutine has received it, so its deliver line comes first.
func (c *child) writeCancellations(batch *bytes.Buffer) {
	c.mu.Lock()
	numbers := c.cancelled
	c.cancelled = nil
	c.mu.Unlock()
	for _, number := range numbers {
		line, _ := encodeCancel(number) // never fails: it has only a number and a constant
		batch.Write(line)
	}
}

func (c *child) markWritten(inBatch []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastActive = time.Now()
	for _, p := range inBatch {
		p.written = true
		p.line = nil
	}
}

// readStdout reads the program's answers until its stdout is closed. After the first line
// that breaks the protocol it discards the rest, because a program whose stdout is full could
// not end.
func (c *child) readStdout() {
	lines := bufio.NewReader(c.stdout)
	err := c.readAnswers(lines)
	c.report(err)
	_, _ = io.Copy(io.Discard, lines)
}

func (c *child) readAnswers(lines *bufio.Reader) error {
	greeted := false
	var line []byte
	for {
		var err error
		line, err = readLine(lines, line[:0], c.sink.config.MaxLineBytes)
		switch {
		case errors.Is(err, errLongLine):
			return wrote(fmt.Errorf("%w: a line on stdout is longer than max_line_bytes, %d", ErrProtocol, c.sink.config.MaxLineBytes), line, c.sink.credentials)
		case err != nil:
			return fmt.Errorf("%w: it %w of stdout", ErrProtocol, errHungUp) // an incomplete last line is ignored
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		r, err := decodeReply(line, c.sink.credentials)
		switch {
		case err != nil && !greeted: // the program has no delivery yet, so the line repeats none
			c.logger.Warn("the program's first line on stdout is no hello", "error", err)
		case err != nil:
		case !greeted:
			if err = r.checkHello(); err == nil {
				greeted = true
				c.setReady(r.Collections)
			}
		case r.Line == lineHello:
			err = fmt.Errorf("%w: it says hello twice", ErrProtocol)
		default:
			err = c.answer(r)
		}
		if err != nil {
			return err
		}
		if cap(line) > 8*batchBytes {
			line = nil
		}
	}
}

// setReady records the program's hello, so that deliveries begin.
func (c *child) setReady(collects bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collects = collects
	c.lastActive = time.Now()
	close(c.ready)
	c.logger.Info("the program is ready")
}

// readStderr logs the program's stderr line by line.
func (c *child) readStderr() {
	lines := bufio.NewReader(c.stderr)
	var line []byte
	for {
		var err error
		line, err = readLine(lines, line[:0], maxLogLine)
		text := c.sink.credentials.Text(string(line))
		if errors.Is(err, errLongLine) {
			text = c.sink.credentials.TrimCut(text)
		}
		if text := clean(text, maxLogLine); text != "" {
			if errors.Is(err, errLongLine) {
				text += "…"
			}
			c.logger.Info("stderr of the program", "text", text)
			c.mu.Lock()
			c.lastStderr = text
			c.mu.Unlock()
		}
		if errors.Is(err, errLongLine) {
			err = skipLine(lines)
		}
		if err != nil {
			return
		}
	}
}

var errLongLine = errors.New("line too long")

// readLine appends the next line to an empty buffer, without its line end. If the line is
// longer than limit bytes, readLine returns the first limit bytes and errLongLine, and leaves
// at least the line end unread. With any other error it returns what it read before.
func readLine(r *bufio.Reader, buffer []byte, limit int) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		buffer = append(buffer, part...)
		switch {
		case len(withoutEnd(buffer)) > limit:
			if err == nil {
				_ = r.UnreadByte() // ReadSlice allows it
			}
			return buffer[:limit], errLongLine
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return buffer, err
		default:
			return withoutEnd(buffer), nil
		}
	}
}

// withoutEnd returns a line without its line end. Other carriage returns, such as those of a progress bar, count
// as its content: a program may write nothing else.
func withoutEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// skipLine discards the rest of a line.
func skipLine(r *bufio.Reader) error {
	for {
		if _, err := r.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
