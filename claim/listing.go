package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// listing is what the pool knows of its source.
type listing struct {
	// The source is to be listed, as soon as it is not being listed already.
	wanted, running bool
	// The last listing that was asked for was an error; one has come in this step that was none.
	failed, answered bool
	// Since slots are short, the source has said that it has none.
	confirmed bool
	// How many requests were unserved when the source was last asked, or the fewest since. More call for another listing.
	unserved int
	// A goroutine follows the source: what changes is told without asking.
	following bool
	// The newest version heard of.
	version uint64
	// Listings that have not returned in time, and still have not.
	behind int
	// While the source is asked: the version at which each name was in the news, and that of the newest full
	// listing that came without asking. The answer may have been overtaken by them.
	news      map[string]uint64
	overtaken uint64
}

// mostBehind is how many listings that have not returned in time may be left behind before no more are asked
// for.
const mostBehind = 4

// list asks the source, in a goroutine of its own: a listing may take its time. One that takes more than
// Timeout is given up, so that a call that hangs costs this one listing.
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

// followAgain is how long a source is left alone that could not be followed.
const followAgain = time.Second

// follow hands on what a source says of itself, until it fails or the pool ends. After a failure the source has time
// to recover; then it is listed in full, and followed from there.
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
			p.update(func(now time.Time) { p.admitListing(&l, false, now) })
			if vain {
				pause(ctx, followAgain)
			}
		}
	}, func(err error) {
		if pause(ctx, followAgain) {
			p.listingFailed(false, errors.Join(errors.New("it can not be followed"), err))
		}
	})
}

// listingFailed ends a listing without slots and reports why. Asked is false if following the source failed.
func (p *Pool) listingFailed(asked bool, why error) {
	p.update(func(time.Time) {
		if l := &p.listing; asked {
			l.running, l.failed = false, true
		} else {
			l.following, l.wanted = false, true
		}
	})
	if p.looking.ctx.Err() == nil {
		p.report(&Error{Kind: ErrSource, Pool: p.Name, Cause: why})
	}
}

// admitListing takes in a listing that was asked for, or news. Slots that are reserved stay out, unless the listing has seen
// what became of them. Ready slots that a full listing does not show are dropped: it is newer than the one that showed
// them, and if it is wrong, they come back with the next. A full listing that is older than what is known drops nothing.
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

// note keeps the news that come while the source is asked.
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

// file makes slots ready, or not ready any more. It reports whether any is new. What news have overtaken is not
// taken from a listing that was asked for before them.
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
