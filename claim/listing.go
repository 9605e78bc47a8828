package claim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// look is what the loop knows of its listings.
type look struct {
	// The source is to be asked, as soon as it is not being asked already.
	wanted, running bool
	// The last answer was an error; the mail just taken has an answer that was none.
	failed, answered bool
	// Since slots are short, the source has been heard to have none.
	confirmed bool
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

// note keeps what comes unasked while the source is asked.
func (l *look) note(h *heard, whole bool) {
	switch {
	case h.asked || !l.running:
		return
	case whole:
		l.overtaken = h.Version
		return
	case l.news == nil:
		l.news = map[string]uint64{}
	}
	for i := range h.Slots {
		l.news[h.Slots[i].Name] = h.Version
	}
	for _, name := range h.Gone {
		l.news[name] = h.Version
	}
}

// knowsBetter reports whether what a listing of a version says of a name has been overtaken by news.
func (l *look) knowsBetter(name string, version uint64) bool {
	return version < l.overtaken || version < l.news[name]
}

// confirm reports whether slots are short by the source's own word, not only as far as the pool knows.
func (l *look) confirm(short bool) bool {
	l.confirmed = short && (l.confirmed || l.answered || l.following)
	return l.confirmed
}

// mostBehind is how many listings that have not returned in time may be left behind before no more are asked
// for.
const mostBehind = 4

// look asks the source, in a goroutine of its own: a listing may take its time. One that takes more than
// Timeout is given up, so that a call that hangs costs this one listing.
func (p *Pool) look() {
	l := &p.listing
	l.wanted, l.running, l.overtaken = false, true, 0
	for _, waiting := range p.lines.all {
		waiting.stirred = false
	}
	clear(l.news)
	p.listings.Add(1)
	p.group.Go(func() {
		var answered atomic.Bool
		overdue := time.AfterFunc(p.set.timeout, func() {
			if answered.CompareAndSwap(false, true) {
				p.heard(heard{err: fmt.Errorf("listing: %w", context.DeadlineExceeded), asked: true, overdue: true})
			}
		})
		var found Listing
		guard.Call(func() (err error) {
			ctx, cancel := context.WithTimeout(p.looking.ctx, p.set.timeout)
			defer cancel()
			found, err = p.Source.Idle(ctx)
			return err
		}, func(err error) {
			overdue.Stop()
			if answered.CompareAndSwap(false, true) {
				p.heard(heard{Listing: found, err: err, asked: true})
			} else {
				p.heard(heard{late: true})
			}
		})
	})
}

// heard hands a listing to the loop, and reports why there is none.
func (p *Pool) heard(h heard) {
	ended := p.looking.ctx.Err() != nil
	p.mail.post(func(m *mail) { m.listings = append(m.listings, h) })
	if h.err != nil && !ended {
		p.report(&Error{Kind: ErrSource, Pool: p.Name, Cause: h.err})
	}
}

// admit files a listing. Slots that are reserved stay out, unless the listing has seen what became of them.
// Ready slots that a full listing does not show are dropped: it is newer than the one that showed them, and if
// it is wrong, they come back with the next. A full listing that is older than what is known drops nothing.
func (p *Pool) admit(h *heard, now time.Time) {
	l := &p.listing
	switch {
	case h.late:
		l.behind--
		return
	case h.overdue:
		l.behind++
	case h.taken != nil:
		h.taken <- struct{}{}
	}
	if h.asked {
		l.running, l.failed = false, h.err != nil
	}
	if h.err != nil {
		if !h.asked { // it can not be followed any more
			l.following, l.wanted = false, true
		}
		return
	}
	l.answered = l.answered || h.asked
	whole := !h.Partial && h.Version >= l.version
	l.version = max(l.version, h.Version)
	l.note(h, whole)
	if p.file(h, whole) {
		p.poll.reset(now)
	}
	if f, ok := p.Source.(Follower); ok && h.asked && !l.following {
		l.following = true
		after := h.Version // h is the mail's, and will be used again
		p.group.Go(func() { p.follow(f, after) })
	}
}

// file makes slots ready, or not ready any more. It reports whether any is new.
func (p *Pool) file(l *heard, whole bool) (fresh bool) {
	if whole {
		p.ready.begin()
		p.reservations.hide()
	}
	for i := range l.Slots {
		if l.asked && p.listing.knowsBetter(l.Slots[i].Name, l.Version) {
			continue
		}
		if !p.reservations.blocks(l.Slots[i].key(), l.Version) && p.ready.admit(l.Slots[i]) {
			fresh = true
		}
	}
	for _, name := range l.Gone {
		p.ready.drop(name)
	}
	if whole {
		p.ready.end()
	}
	return fresh
}
