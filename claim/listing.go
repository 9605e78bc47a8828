package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
	"github.com/orbitsched/orbit/internal/send"
)

// listing is the state of the pool's communication with its source. A listing is requested if it is the result of Idle;
// the results of Follow come unrequested.
type listing struct {
	// running says that a call of Idle is under way, wanted that the source is to be listed as soon as none is.
	wanted, running bool
	// failed says that the last requested listing was an error, answered that a successful one came in this step.
	failed, answered bool
	// confirmed says that a listing has confirmed the present shortage.
	confirmed bool
	// unserved is the smallest number of unserved requests since the source was last listed. When the number rises above
	// it the source is listed again.
	unserved int
	// following says that a goroutine follows the source, so that changes arrive unrequested.
	following bool
	// retry is when a Follower is listed again after a failure; zero: not because of a failure. pause is the last time
	// that was waited for that: each failure doubles it, and a Follow that succeeds sets it to 0.
	retry time.Time
	pause time.Duration
	// version is the newest version that a listing had.
	version uint64
	// behind is the number of calls of Idle that have taken longer than Timeout and have not returned.
	behind int
	// news has, while Idle runs, the version of the last unrequested listing that named each slot; overtaken is the
	// version of the last unrequested full listing. Where they are newer than the result of Idle, the result is
	// ignored.
	news      map[string]uint64
	overtaken uint64
}

// mostBehind is the number of calls of Idle that may hang at a time. If more hang, the source is not listed any more.
const mostBehind = 4

// list calls Idle in a goroutine of its own. After Timeout the result is ignored, so a call that hangs costs only this
// one listing.
func (p *Pool) list() {
	p.listing.wanted, p.listing.running = false, true
	p.listing.news, p.listing.overtaken = map[string]uint64{}, 0
	p.stats.Listings++
	p.calls.Go(func() {
		overdue := time.AfterFunc(p.set.timeout, func() {
			p.update(func(time.Time) { p.listing.behind++ })
			p.listingFailed(true, fmt.Errorf("listing: %w", context.DeadlineExceeded))
		})
		var found Listing
		guard.Call(func() (err error) {
			ctx, cancel := context.WithTimeout(p.looking.ctx, p.set.timeout)
			defer cancel()
			found, err = p.Source.Idle(ctx)
			return err
		}, func(err error) {
			switch late := !overdue.Stop(); {
			case late:
				p.update(func(time.Time) { p.listing.behind-- })
			case err != nil:
				p.listingFailed(true, err)
			default:
				p.update(func(now time.Time) { p.admitListing(&found, true, now) })
			}
		})
	})
}

// followAgain is the pause after a call of Follow that brought nothing.
const followAgain = time.Second

// follow admits the results of Follow until a call fails or the pool ends. After a failure the source is listed in full
// and followed from there.
func (p *Pool) follow(f Follower, after uint64) {
	ctx := p.looking.ctx
	guard.Call(func() error {
		for {
			l, err := f.Follow(ctx, after)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			vain := l.Version <= after && (l.Version > 0 || l.Partial && len(l.Slots)+len(l.Gone) == 0)
			after = l.Version
			p.update(func(now time.Time) {
				p.listing.pause = 0
				p.admitListing(&l, false, now)
			})
			if vain {
				send.Pause(ctx, followAgain)
			}
		}
	}, func(err error) {
		if ctx.Err() == nil {
			p.listingFailed(false, fmt.Errorf("Follow failed, and is called again after the next listing: %w", err))
		}
	})
}

// listingFailed notes and reports that Idle has failed or, if the listing was not requested, that Follow has. A source
// that could be followed and is not is listed again after a pause of 10 ms, and twice as long after each further
// failure, up to a second: the next poll may be minutes away.
func (p *Pool) listingFailed(asked bool, why error) {
	p.update(func(now time.Time) {
		l := &p.listing
		if asked {
			l.running, l.failed = false, true
		} else {
			l.following = false
		}
		if _, ok := p.Source.(Follower); ok && !l.following && l.retry.IsZero() {
			l.pause = min(max(2*l.pause, send.First), send.Most)
			l.retry = now.Add(l.pause)
		}
	})
	if p.looking.ctx.Err() == nil {
		p.report(&Error{Kind: ErrSource, Pool: p.Name, Cause: why})
	}
}

// admitListing updates the ready slots from a listing. Reserved slots stay out unless the listing's version includes
// the outcome of their claim. Ready slots that a full listing does not show are dropped, because it is newer than the
// one that showed them; if it is wrong, the next one brings them back. A full listing with an older version than an
// earlier listing drops nothing.
func (p *Pool) admitListing(h *Listing, asked bool, now time.Time) {
	l := &p.listing
	if asked {
		l.running, l.failed, l.answered = false, false, true
	}
	whole := !h.Partial && h.Version >= l.version
	l.version = max(l.version, h.Version)
	if l.running {
		l.note(h, whole)
	}
	if p.file(h, asked, whole) {
		p.poll.reset(now)
	}
	if f, ok := p.Source.(Follower); ok && asked && !l.following && !p.shut {
		l.following = true
		p.calls.Go(func() { p.follow(f, h.Version) })
	}
}

// note remembers which slots an unrequested listing names while Idle runs.
func (l *listing) note(h *Listing, whole bool) {
	if whole {
		l.overtaken = h.Version
		return
	}
	for i := range h.Slots {
		l.news[h.Slots[i].Name] = h.Version
	}
	for _, name := range h.Gone {
		l.news[name] = h.Version
	}
}

// file adds and drops ready slots as a listing says, and reports whether any is new. In a requested listing it ignores
// the slots for which an unrequested listing with a newer version came while Idle ran.
func (p *Pool) file(h *Listing, asked, whole bool) (fresh bool) {
	if whole {
		p.ready.begin()
		p.reservations.hide()
	}
	for _, s := range h.Slots {
		if asked && (h.Version < p.listing.overtaken || h.Version < p.listing.news[s.Name]) {
			continue
		}
		if !p.reservations.blocks(s.key(), h.Version) && p.ready.admit(s) {
			p.lines.offer(s.Labels)
			fresh = true
		}
	}
	for _, name := range h.Gone {
		p.ready.drop(name)
	}
	if whole {
		p.ready.end()
	}
	return fresh
}
