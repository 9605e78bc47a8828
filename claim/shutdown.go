package claim

import "time"

// Shutdown ends the pool: nothing more is taken on, those who wait are answered with ErrShutdown, and those
// whose claim is in flight with its outcome. It returns when all have been answered: after Grace at the latest,
// for then they are answered with ErrShutdown too, and at most as long again while what they have claimed is
// given back; a source that takes longer is still undone when it has answered. It may be called at any time,
// before Run too, from several goroutines, and from the pool's own hooks and its source.
func (p *Pool) Shutdown() {
	p.init()
	p.close()
	if p.phase.CompareAndSwap(fresh, ended) {
		p.drain()
		return
	}
	<-p.done
}

// close lets nothing more in, and wakes the loop for its end.
func (p *Pool) close() {
	p.shut.Store(true)
	if p.mail.close() {
		close(p.stop)
	}
}

// drain answers everybody. It runs in the loop's stead: after it, or where it never ran.
func (p *Pool) drain() {
	defer close(p.done)
	p.looking.end()
	p.turnAway()
	grace := time.NewTimer(p.set.grace)
	defer grace.Stop()
	for waiting := true; waiting && len(p.flying) > 0; {
		select {
		case <-p.mail.wake:
			p.turnAway()
		case <-grace.C:
			waiting = false
		}
	}
	for f := range p.flying {
		f.ticket.fail(ErrShutdown, f.slot, nil)
	}
	close(p.answered)
	p.flights.end()
	p.wait()
	p.idle.Store(0)
	p.reserved.Store(0)
}

// turnAway answers those who wait. Conflicts have put some of them back.
func (p *Pool) turnAway() {
	now := time.Now()
	p.takeMail(now)
	for i := range p.inMail.outcomes {
		p.conclude(&p.inMail.outcomes[i], now)
	}
	for _, l := range p.lines.all {
		for t := l.first(); t != nil; t = l.first() {
			l.remove(t)
			t.fail(ErrShutdown, Slot{}, nil)
		}
	}
}

// wait waits for the goroutines that the loop has started, those that may have something to undo above all. It
// does not wait for ever: they may be in somebody else's code.
func (p *Pool) wait() {
	gone := make(chan struct{})
	go func() {
		p.group.Wait()
		close(gone)
	}()
	grace := time.NewTimer(p.set.grace)
	defer grace.Stop()
	select {
	case <-gone:
	case <-grace.C:
	}
}
