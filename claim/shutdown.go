package claim

import (
	"sync"
	"time"
)

// Shutdown ends the pool and answers every request. It refuses new requests, answers those that wait with ErrShutdown,
// and waits at most Grace for the claims in flight, whose requests are answered with the outcome. After Grace it
// answers these with ErrShutdown too, and waits at most Grace again while the pool gives back what they have claimed.
// Slots of claims that take even longer are given back after Shutdown has returned. It may be called at any time, even
// before Run, from several goroutines, and from the pool's own hooks and its source.
func (p *Pool) Shutdown() {
	p.init()
	if p.turnAway() {
		p.end()
	}
	<-p.done
}

// end answers the requests whose claims are in flight and waits for the goroutines, as Shutdown describes.
func (p *Pool) end() {
	defer close(p.done)
	close(p.stop)
	p.looking.end()
	p.await(&p.claims)
	p.update(func(time.Time) {
		for a := range p.attempts {
			p.fail(a.request, ErrShutdown, a.slot, nil)
		}
	})
	close(p.answered)
	p.claiming.end()
	p.await(&p.claims, &p.calls)
	p.gauges.idle.Store(0)
	p.gauges.reserved.Store(0)
}

// turnAway makes the pool refuse requests and answers those that wait. It reports false if that has been done before.
func (p *Pool) turnAway() bool {
	p.mu.Lock()
	defer p.unlock()
	if p.shut {
		return false
	}
	p.shut = true
	for _, l := range p.lines.byWant {
		for l.requests.Len() > 0 {
			r := l.first()
			p.lines.remove(r)
			p.fail(r, ErrShutdown, Slot{}, nil)
		}
	}
	return true
}

// await waits until the goroutines have ended, but no longer than Grace, because they may hang in an importer's code.
func (p *Pool) await(groups ...*sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		for _, group := range groups {
			group.Wait()
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(p.set.grace):
	}
}
