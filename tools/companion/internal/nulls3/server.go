// Package nulls3 is an S3 server that keeps nothing: the ceiling of a load generator is measured against it.
package nulls3

// Main is `cbt-hybrid null`: serves until SIGTERM or SIGINT and returns the exit status.
func Main(args []string) int { return 2 }
