package logledger

import "fmt"

func (l *Ledger) Dbg() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("index %d open %d stale %v trouble %v due %v posted %v posts %d turn %v retry %v patient %v gather %v arrived %d stats %+v", l.w.index, len(l.open.runs), l.stale, l.trouble, l.due.Load(), len(l.w.posted), len(l.w.posts), l.w.turn == l.self, l.w.retry, l.w.patient, l.w.gather, len(l.arrived), l.Stats())
}
