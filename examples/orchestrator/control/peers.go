package control

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/orbitsched/orbit/telemetry"
)

// This file lets the boards of several control processes feed each other. An agent reports to one process. Each process
// reads the boards of its peers, so all of them know the reports of all nodes, and each may give work to any node. Whether
// a node lives is not decided by boards but by its lease, whose refreshes the processes share in the store of the ledger. So
// a process that hears nothing of a node, because a peer is suspended or cut off, gives it no new work and leaves it its old.

// pathBoard is where a control process feeds its board to a peer.
const pathBoard = "/board"

// serveBoard feeds the board to a peer until the peer ends the request.
func serveBoard(board *telemetry.Board) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := board.Feed(r.Context(), stream{w, http.NewResponseController(w)}); err != nil {
			slog.Debug("feed a peer", "peer", r.RemoteAddr, "error", err) // the peer says so, too, and asks again
		}
	}
}

// stream is an answer that is sent bit by bit.
type stream struct {
	http.ResponseWriter
	*http.ResponseController
}

// Write implements io.Writer.
func (s stream) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	if err == nil {
		err = s.Flush()
	}
	return n, err
}

// followPeer reads the board of a peer until ctx ends. If that fails, it tries again a second later. It tells of a peer that
// cannot be reached once.
func followPeer(ctx context.Context, client *http.Client, board *telemetry.Board, url string) error {
	for told := false; ctx.Err() == nil; {
		reached, err := readBoard(ctx, client, board, strings.TrimSuffix(url, "/")+pathBoard)
		if ctx.Err() == nil && (reached || !told) {
			slog.Warn("read the board of a peer", "peer", url, "error", err)
		}
		told = !reached
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// readBoard reads the board of a peer until the connection ends. It reports whether there was one.
func readBoard(ctx context.Context, client *http.Client, board *telemetry.Board, url string) (reached bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	watch := time.AfterFunc(time.Minute, cancel) // Follow sets a shorter time
	defer watch.Stop()
	got, err := client.Do(r)
	if err != nil {
		return false, err
	}
	defer got.Body.Close() //nolint:errcheck // it was read
	if got.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s", url, got.Status)
	}
	return true, board.Follow(ctx, timed{got.Body, watch})
}

// timed is the body of an answer whose request is cancelled at a deadline.
type timed struct {
	io.ReadCloser
	end *time.Timer
}

// SetReadDeadline implements what Follow looks for in a connection.
func (t timed) SetReadDeadline(at time.Time) error {
	t.end.Reset(time.Until(at))
	return nil
}
