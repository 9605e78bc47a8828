package cluster

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
)

// Link is the way between a client and the members. It can be held up, as a network is that is full or a reader that
// is slow, and broken. The zero value is a link in order. Its methods may be called from any goroutine.
type Link struct {
	// Guards what follows.
	mu sync.Mutex
	// Closed when the link goes on; nil: it is not held up.
	held chan struct{}
	// Only what comes from the members is held up.
	answers bool
	broken  bool
	open    map[net.Conn]struct{}
}

// Hold lets nothing through in either direction until Release; nothing is lost.
func (l *Link) Hold() { l.hold(false) }

// HoldAnswers lets nothing through from the members until Release. What is sent to them arrives.
func (l *Link) HoldAnswers() { l.hold(true) }

func (l *Link) hold(answers bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(chan struct{})
	}
	l.answers = answers
}

// Release undoes a Hold.
func (l *Link) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

// Break closes all connections, and lets none be made until Mend.
func (l *Link) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for c := range l.open {
		_ = c.Close()
	}
	clear(l.open)
}

// Mend undoes a Break.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
}

// dial makes a connection over the link.
func (l *Link) dial(ctx context.Context, address string) (net.Conn, error) {
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	if broken {
		return nil, errBroken
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		_ = conn.Close()
		return nil, errBroken
	}
	if l.open == nil {
		l.open = map[net.Conn]struct{}{}
	}
	l.open[conn] = struct{}{}
	return &linked{Conn: conn, link: l, closed: make(chan struct{})}, nil
}

var errBroken = errors.New("cluster: the link is broken")

// linked is a connection over a link.
type linked struct {
	net.Conn
	link   *Link
	once   sync.Once
	closed chan struct{}
}

// pass waits while the link is held up.
func (c *linked) pass(answer bool) {
	c.link.mu.Lock()
	held, free := c.link.held, c.link.answers && !answer
	c.link.mu.Unlock()
	if held == nil || free {
		return
	}
	select {
	case <-held:
	case <-c.closed:
	}
}

// Read waits, with what has come, until the link lets it through.
func (c *linked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass(true)
	return n, err
}

// Write waits until the link lets it through.
func (c *linked) Write(b []byte) (int, error) {
	c.pass(false)
	return c.Conn.Write(b)
}

// Close closes the connection, held up or not.
func (c *linked) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.link.mu.Lock()
	delete(c.link.open, c.Conn)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
