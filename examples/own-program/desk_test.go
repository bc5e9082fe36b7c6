package main

import (
	"bufio"
	"fmt"
	"net"
	"sync"
)

// page is what a desk was asked to send.
type page struct{ ID, Text string }

// desk takes pages over TCP: a line with a page, a line with the answer. It
// stands for a destination that you would have.
type desk struct {
	// answer decides about a page, at each try; an OK gets its number behind it.
	answer func(page) string

	listener net.Listener
	calls    sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	pages []page // taken
}

func openDesk(answer func(page) string) (*desk, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &desk{answer: answer, listener: listener, open: make(map[net.Conn]bool)}
	d.calls.Go(d.listen)
	return d, nil
}

func (d *desk) address() string { return d.listener.Addr().String() }

// taken returns the pages so far.
func (d *desk) taken() []page {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]page(nil), d.pages...)
}

// close ends all connections.
func (d *desk) close() {
	_ = d.listener.Close()
	d.mu.Lock()
	for conn := range d.open {
		_ = conn.Close()
	}
	d.mu.Unlock()
	d.calls.Wait()
}

func (d *desk) listen() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return // closed
		}
		d.mu.Lock()
		d.open[conn] = true
		d.mu.Unlock()
		d.calls.Go(func() { d.serve(conn) })
	}
}

func (d *desk) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, conn)
	}()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	var p page
	if _, err := fmt.Sscanf(line, "PAGE %q %q\n", &p.ID, &p.Text); err != nil {
		fmt.Fprintln(conn, "NO that is no page")
		return
	}
	answer := d.answer(p)
	if answer == "OK" {
		d.mu.Lock()
		d.pages = append(d.pages, p)
		answer = fmt.Sprintf("OK %d", len(d.pages))
		d.mu.Unlock()
	}
	fmt.Fprintln(conn, answer)
}
