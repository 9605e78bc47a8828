// Package kubeorbit runs orbit as a scheduler of Kubernetes.
package kubeorbit
