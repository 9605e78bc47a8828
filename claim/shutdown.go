package claim

import (
	"sync"
	"time"
)

// Shutdown ends the pool: nothing more is taken on, those who wait are answered with ErrShutdown, and those
// whose claim is in flight with its outcome. It returns when all have been answered: after Grace at the latest,
// for then they are answered with ErrShutdown too, and at most as long again while what they have claimed is
// given back; a source that takes longer is still undone when it has answered. It may be called at any time,
// before Run too, from several goroutines, and from the pool's own hooks and its source.
func (p *Pool) Shutdown() {
	p.init()
	if p.turnAway() {
		p.end()
	}
	<-p.done
}

// end answers the requests that are left.
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

// turnAway lets nothing more in, and answers the requests that wait. It reports false if that has been done.
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

// await waits until goroutines have ended, or Grace has passed: they may be in code of an importer.
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
