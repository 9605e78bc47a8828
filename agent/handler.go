package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/orbitsched/orbit"
)

// Handler serves a [Control] to the [Client]s of agents in other processes. It checks no credentials: every caller that
// can reach it can speak for every node, so put authentication in front of it. If the server has a WriteTimeout, it
// must not be shorter than [Agent.Every], because a Watch takes that long.
//
//	http.Handle("/agent/", http.StripPrefix("/agent", agent.Handler(local)))
func Handler(control Control) http.Handler {
	mux := http.NewServeMux()
	serve(mux, pathJoin, func(ctx context.Context, r *joinRequest) (any, error) {
		return answered(control.Join(ctx, r.Node, r.Holder))
	})
	serve(mux, pathLeave, func(ctx context.Context, r *leaveRequest) (any, error) {
		return struct{}{}, control.Leave(ctx, r.Node, r.Term)
	})
	serve(mux, pathReport, func(ctx context.Context, r *orbit.Report) (any, error) {
		return struct{}{}, control.Report(ctx, *r)
	})
	serve(mux, pathWatch, func(ctx context.Context, r *watchRequest) (any, error) {
		if r.Wait > 0 {
			brief, cancel := context.WithTimeout(ctx, time.Duration(min(r.Wait, maxWait))*time.Millisecond)
			defer cancel()
			ctx = brief
		}
		return answered(control.Watch(ctx, r.Node, r.After))
	})
	serve(mux, pathConfirm, func(ctx context.Context, r *confirmRequest) (any, error) {
		answers := []outcome{}
		for _, o := range control.Confirm(ctx, r.Node, r.Term, r.Said) {
			answers = append(answers, outcome{o.Revision, faultOf(o.Err)})
		}
		return answers, nil
	})
	return mux
}

// maxWait is the longest time that a Watch may take, in milliseconds.
const maxWait = 600_000

// answered converts a typed result to the result type of serve's functions.
func answered[T any](result T, err error) (any, error) { return result, err }

// serve registers do for a path. It reads the request from JSON and writes the answer, or the error as a fault, as
// JSON.
func serve[T any](mux *http.ServeMux, path string, do func(context.Context, *T) (any, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		request := new(T)
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err == nil {
			if err = json.Unmarshal(text, request); err != nil {
				err = fmt.Errorf("agent: %w: %w", orbit.ErrInvalid, err)
			}
		} else if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			err = fmt.Errorf("agent: %w: a request has at most %d bytes", orbit.ErrInvalid, tooLong.Limit)
		}
		var answer any
		if err == nil {
			answer, err = do(r.Context(), request)
		}
		status := http.StatusOK
		if err != nil {
			status, answer = http.StatusUnprocessableEntity, faultOf(err)
		}
		text, err = json.Marshal(answer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(text) // if the answer is lost, the agent sends the request again
	})
}
