package itest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wire is the network between a process and one address of a store. It passes on bytes, and can be cut, lose all answers, or
// deliver requests late. Its methods may be called from any goroutine.
type wire struct {
	to       string
	listener net.Listener

	mu        sync.Mutex // guards the fields below, and those of pipes
	cut, deaf bool
	pipes     map[*pipe]struct{}
}

// pipe is a connection: near is its end at the process, far the one at the store.
type pipe struct {
	near, far net.Conn
	// gate is closed when requests go on; nil: they are not held up.
	gate chan struct{}
}

// newWire returns a wire to an address, which is there until the end of the test.
func newWire(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{to: to, listener: l, pipes: map[*pipe]struct{}{}}
	go w.serve()
	t.Cleanup(func() {
		_ = l.Close()
		w.set(true, false)
	})
	return w
}

// address is where the process finds the store.
func (w *wire) address() string { return w.listener.Addr().String() }

// serve takes connections until the listener is closed.
func (w *wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		p := &pipe{near: near, far: far}
		w.mu.Lock()
		if w.pipes[p] = struct{}{}; w.cut {
			p.end()
		}
		w.mu.Unlock()
		go w.ask(p)
		go w.answer(p)
	}
}

// end closes both ends.
func (p *pipe) end() { _, _ = p.near.Close(), p.far.Close() }

// ask passes on the requests of a pipe until one of its ends is closed.
func (w *wire) ask(p *pipe) {
	buffer := make([]byte, 1<<15)
	for {
		n, err := p.near.Read(buffer)
		w.mu.Lock()
		gate := p.gate
		w.mu.Unlock()
		if n > 0 && gate != nil {
			<-gate
		}
		if _, failed := p.far.Write(buffer[:n]); err != nil || failed != nil {
			break
		}
		if gate != nil {
			time.Sleep(20 * time.Millisecond) // so that the store takes them before it sees that the connection has ended
		}
	}
	p.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pipes, p)
}

// answer passes on the answers of a pipe until the store's end is closed.
func (w *wire) answer(p *pipe) {
	buffer := make([]byte, 1<<15)
	for {
		n, err := p.far.Read(buffer)
		if err != nil {
			break
		}
		if !w.isDeaf() {
			_, _ = p.near.Write(buffer[:n]) // if nobody is there, it is lost
		}
	}
	_ = p.near.Close()
}

func (w *wire) isDeaf() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deaf
}

// set says whether the wire is cut, and whether it loses answers. A wire that does neither works. All connections end when it
// is cut, and when it has lost answers.
func (w *wire) set(cut, deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.pipes {
		if cut || w.deaf {
			p.end()
		}
	}
	w.cut, w.deaf = cut, deaf
}

// hold holds up the requests of the connections that are open. New connections are not held up.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.pipes {
		if p.gate == nil {
			p.gate = make(chan struct{})
		}
	}
}

// abandon ends the connections that are held up for the process, but not for the store. It only ends what goes to the process:
// what the process has sent before may still be on its way to ask.
func (w *wire) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.pipes {
		if p.gate != nil {
			_ = p.near.(*net.TCPConn).CloseWrite()
		}
	}
}

// deliver passes on the requests that were held up.
func (w *wire) deliver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.pipes {
		if p.gate != nil {
			close(p.gate)
			p.gate = nil
		}
	}
}

// A wire passes on bytes; it loses answers, ends connections, and delivers late, when it is told to.
func TestWire(t *testing.T) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = far.Close() }()
	heard := make(chan byte, 100)
	go func() {
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 1)
				for _, err := c.Read(b); err == nil; _, err = c.Read(b) {
					heard <- b[0]
					_, _ = c.Write(b)
				}
			}()
		}
	}()
	w := newWire(t, far.Addr().String())
	say := func(c net.Conn, b byte) {
		_, err := c.Write([]byte{b})
		require.NoError(t, err)
		require.Equal(t, b, receive(t, heard))
	}
	ends := func(c net.Conn) {
		n, err := c.Read(make([]byte, 1))
		require.Error(t, err)
		require.Zero(t, n)
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", w.address())
		require.NoError(t, err)
		return c
	}
	for _, end := range []bool{true, false} { // whether it is cut, or loses answers
		c := dial()
		say(c, 1)
		answer := make([]byte, 1)
		_, err = c.Read(answer)
		require.NoError(t, err)
		require.Equal(t, byte(1), answer[0])
		if w.set(end, !end); end {
			ends(c)
			ends(dial())
		} else {
			say(c, 2)
			w.set(false, false)
			ends(c)
		}
		w.set(false, false)
	}
	c := dial()
	say(c, 3)
	w.hold()
	_, err = c.Write([]byte{4})
	require.NoError(t, err)
	say(dial(), 5)
	w.abandon()
	_, _ = c.Read(make([]byte, 1)) // the answer to what was sent before
	ends(c)
	require.Empty(t, heard)
	w.deliver()
	require.Equal(t, byte(4), receive(t, heard))
}
