package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

const (
	// Bytes of stdin that are gathered for one write.
	batchBytes = 32 << 10

	// Bytes of a line of stderr that stand in the log.
	maxLogLine = 4 << 10
)

// writeStdin writes what is handed over, until the child takes nothing any more.
// It alone waits for a program that does not read.
func (c *child) writeStdin() {
	hello, err := encodeHello(c.sink.name, c.sink.config.MaxLineBytes)
	if err == nil {
		_, err = c.stdin.Write(hello)
	}
	var (
		batch  bytes.Buffer
		ridden []*pending // in the batch
	)
	for err == nil {
		batch.Reset()
		ridden = ridden[:0]
		select {
		case <-c.mute:
			return
		case p := <-c.outgoing:
			ridden = append(ridden, p)
			batch.Write(p.line)
			ridden = c.gather(&batch, ridden)
		case <-c.wake:
		}
		c.writeCancellations(&batch)
		if _, err = c.stdin.Write(batch.Bytes()); err == nil {
			c.noteWritten(ridden)
		}
		if batch.Cap() > 8*batchBytes {
			batch = bytes.Buffer{} // one huge line must not stay forever
		}
	}
	c.report(fmt.Errorf("%w: it %w of stdin: %w", ErrProtocol, errHungUp, err))
}

// gather adds the lines that are waiting already.
func (c *child) gather(batch *bytes.Buffer, ridden []*pending) []*pending {
	for batch.Len() < batchBytes {
		select {
		case p := <-c.outgoing:
			ridden = append(ridden, p)
			batch.Write(p.line)
		default:
			return ridden
		}
	}
	return ridden
}

// writeCancellations adds the lines of what was cancelled. A delivery is
// cancelled only once it was taken by this goroutine, so its line comes first.
func (c *child) writeCancellations(batch *bytes.Buffer) {
	c.mu.Lock()
	numbers := c.cancelled
	c.cancelled = nil
	c.mu.Unlock()
	for _, number := range numbers {
		line, _ := encodeCancel(number) // numbers and words can be encoded
		batch.Write(line)
	}
}

func (c *child) noteWritten(ridden []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = time.Now()
	for _, p := range ridden {
		p.written = true
		p.line = nil
	}
}

// readStdout takes the program's answers until its stdout is closed. After the
// first line that breaks the protocol it reads on and looks at nothing: a program
// that cannot write could not end.
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
			return fmt.Errorf("%w: a line on stdout is longer than max_line_bytes, %d; it begins with %q", ErrProtocol, c.sink.config.MaxLineBytes, excerpt(line, c.sink.credentials))
		case err != nil:
			return fmt.Errorf("%w: it %w of stdout", ErrProtocol, errHungUp) // a line without an end is no line
		case len(line) == 0:
			continue
		}
		r, err := decodeReply(line, c.sink.credentials)
		switch {
		case err != nil:
		case !greeted:
			if err = r.checkHello(); err == nil {
				greeted = true
				c.greet()
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

// greet lets deliveries begin.
func (c *child) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = time.Now()
	close(c.ready)
	c.logger.Info("the program is ready")
}

// readStderr puts the program's stderr into the log, line by line.
func (c *child) readStderr() {
	level := slog.LevelInfo
	if c.sink.config.Stderr == "warn" {
		level = slog.LevelWarn
	}
	lines := bufio.NewReader(c.stderr)
	var line []byte
	for {
		var err error
		line, err = readLine(lines, line[:0], maxLogLine)
		said := c.sink.credentials.Text(string(line))
		if errors.Is(err, errLongLine) {
			said = c.sink.credentials.WithoutCut(said)
		}
		if text := clean(said, maxLogLine); text != "" {
			if errors.Is(err, errLongLine) {
				text += "…"
			}
			c.logger.Log(context.Background(), level, "the program says", "text", text)
			c.mu.Lock()
			c.lastWords = text
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

// readLine appends the next line to an empty buffer, without its end. errLongLine
// comes with the first limit bytes while the end is still to be read; any other
// error with what came before it.
func readLine(r *bufio.Reader, buffer []byte, limit int) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		buffer = append(buffer, part...)
		switch {
		case len(bytes.TrimRight(buffer, "\r\n")) > limit:
			if err == nil {
				_ = r.UnreadByte() // ReadSlice allows it
			}
			return buffer[:limit], errLongLine
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return buffer, err
		default:
			return bytes.TrimRight(buffer, "\r\n"), nil
		}
	}
}

// skipLine reads the rest of a line.
func skipLine(r *bufio.Reader) error {
	for {
		if _, err := r.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
