package claim

import (
	"time"
)

// deliverFor is how long an answer is offered to a caller who has left no room for it.
const deliverFor = time.Second

// deliver answers. It does not wait for the caller: where there is no room for the answer, a goroutine offers
// it for a while. Nobody is answered in vain: a slot that is not taken is given back.
func (p *Pool) deliver(t *ticket, r Result) {
	if sent, closed := offer(t.req.Result, r, nil); sent {
		return
	} else if !closed {
		go p.deliverLate(t, r)
		return
	}
	p.takeBack(r)
}

func (p *Pool) deliverLate(t *ticket, r Result) {
	patience := time.NewTimer(deliverFor)
	defer patience.Stop()
	if sent, _ := offer(t.req.Result, r, patience.C); !sent {
		p.takeBack(r)
	}
}

// takeBack gives a slot back that could not be handed over, also when the pool has ended.
func (p *Pool) takeBack(r Result) {
	if r.Err == nil {
		go func() {
			if err := p.undo(r.Slot); err != nil {
				p.leak(r.Slot, err)
				return
			}
			p.NotifyIdle()
		}()
	}
}

// offer sends, at once or until patience ends. A caller may have closed the channel.
func offer(to chan<- Result, r Result, patience <-chan time.Time) (sent, closed bool) {
	defer func() { closed = recover() != nil }()
	if patience == nil {
		select {
		case to <- r:
			return true, false
		default:
			return false, false
		}
	}
	select {
	case to <- r:
		return true, false
	case <-patience:
		return false, false
	}
}
