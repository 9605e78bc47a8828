// Package itest runs the queries of promorbit's Grafana dashboard, and its alerts, by Prometheus's own engine. It is a module of its
// own, because Prometheus is a large dependency that importers of promorbit do not need.
package itest
