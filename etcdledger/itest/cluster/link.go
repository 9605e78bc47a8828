package cluster

import (
	"context"
	"errors"
	"net"
	"path"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

// Link is the network between a client and the members. It can be held up like a full network or a slow reader, and
// broken. The zero value works without faults. Its methods may be called from any goroutine.
type Link struct {
	mu sync.Mutex // guards the fields below
	// bytes is closed when bytes go on; nil: they are not held up.
	bytes chan struct{}
	// answers is closed when answers go on; nil: they are not held up. While they are held up, the method of each answer is
	// sent to answered.
	answers  chan struct{}
	answered chan string
	broken   bool
	open     map[net.Conn]struct{}
}

// Hold stops all bytes in both directions until Release. No byte is lost.
func (l *Link) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes == nil {
		l.bytes = make(chan struct{})
	}
}

// HoldAnswers holds back every answer of the members, and every message of a watch, until Release. Requests still
// arrive at the members. The channel gets the name of the method of each answer that is held back, such as Range, Txn
// or Watch. At most a hundred names wait in the channel; further ones are dropped.
func (l *Link) HoldAnswers() <-chan string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers == nil {
		l.answers, l.answered = make(chan struct{}), make(chan string, 100)
	}
	return l.answered
}

// Release undoes Hold and HoldAnswers.
func (l *Link) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range []*chan struct{}{&l.bytes, &l.answers} {
		if *held != nil {
			close(*held)
			*held = nil
		}
	}
}

// holdAnswer holds an answer back while answers are held, or until its call ends.
func (l *Link) holdAnswer(ctx context.Context, method string) {
	l.mu.Lock()
	held, answered := l.answers, l.answered
	l.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case answered <- path.Base(method):
	default:
	}
	select {
	case <-held:
	case <-ctx.Done():
	}
}

// call is a grpc interceptor of requests with one answer.
func (l *Link) call(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	l.holdAnswer(ctx, method)
	return err
}

// stream is a grpc interceptor of streams.
func (l *Link) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return &linkedStream{stream, l, method}, nil
}

// linkedStream is a stream over a link.
type linkedStream struct {
	grpc.ClientStream
	link   *Link
	method string
}

// RecvMsg returns a message when the link lets it through.
func (s *linkedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	s.link.holdAnswer(s.Context(), s.method)
	return err
}

// Break closes all connections and prevents new ones until Mend.
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
func (c *linked) pass() {
	c.link.mu.Lock()
	held := c.link.bytes
	c.link.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-c.closed:
	}
}

// Read reads, and waits with the bytes while the link is held up.
func (c *linked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass()
	return n, err
}

// Write waits until the link lets it through.
func (c *linked) Write(b []byte) (int, error) {
	c.pass()
	return c.Conn.Write(b)
}

// Close closes the connection, even while it is held up.
func (c *linked) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.link.mu.Lock()
	delete(c.link.open, c.Conn)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
