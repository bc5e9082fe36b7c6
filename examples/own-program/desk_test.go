package main

import (
	"bufio"
	"fmt"
	"net"
	"sync"
)

// page is a message that a desk must send to a person's pager.
type page struct{ ID, Text string }

// desk is a TCP server that accepts pages: the client sends one line with a page, and the desk
// answers with one line.
type desk struct {
	// answer returns the answer to a page, for each attempt. To "OK" the desk adds the number of the page.
	answer func(page) string

	listener net.Listener
	calls    sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	pages []page // accepted
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

// accepted returns the pages that the desk has accepted.
func (d *desk) accepted() []page {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]page(nil), d.pages...)
}

// close closes the listener and all connections.
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
		fmt.Fprintln(conn, "NO this is not a page")
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
