package drive

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"time"

	"cbt-plugins/companion/internal/s3"
)

// makeBuckets makes the buckets that objects are to be written into and that are not there.
func (e *engine) makeBuckets() error {
	if !e.spec.MakeBuckets {
		return nil
	}
	handled := map[string]bool{}
	for i := range e.spec.Spaces {
		space := &e.spec.Spaces[i]
		if !space.Numbered || handled[space.Bucket] {
			continue
		}
		handled[space.Bucket] = true
		var result s3.Result
		if err := e.aboutBucket(&s3.Request{Op: s3.Stat, Bucket: space.Bucket}, &result); err != nil {
			return err
		}
		if result.Status == 404 {
			if err := e.aboutBucket(&s3.Request{Op: s3.Put, Bucket: space.Bucket, Body: noBody{}}, &result); err != nil {
				return err
			}
		}
		if e.spec.Versioned {
			request := &s3.Request{Op: s3.Put, Bucket: space.Bucket, Query: "versioning=", Body: versioning{}}
			if err := e.aboutBucket(request, &result); err != nil {
				return err
			}
		}
	}
	return nil
}

// noBody is what a request to make a bucket has.
type noBody struct{}

func (noBody) Size() int64                      { return 0 }
func (noBody) Sum() [32]byte                    { return sha256.Sum256(nil) }
func (noBody) WriteTo(io.Writer) (int64, error) { return 0, nil }
func (noBody) Section(int64, int64) s3.Body     { return noBody{} }

// versioning is what a request has that makes a bucket keep versions.
type versioning struct{}

const versioningText = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"

func (versioning) Size() int64   { return int64(len(versioningText)) }
func (versioning) Sum() [32]byte { return sha256.Sum256([]byte(versioningText)) }
func (versioning) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, versioningText)
	return int64(n), err
}
func (versioning) Section(int64, int64) s3.Body { return versioning{} }

// aboutBucket makes one request, again when it fails in a way that may pass.
func (e *engine) aboutBucket(request *s3.Request, result *s3.Result) error {
	for begun, try := time.Now(), 1; ; try++ {
		if e.stopped() {
			return errStopped
		}
		request.Until = time.Now().Add(e.patience())
		e.client.Do(request, result)
		switch {
		case result.Kind == "", request.Op == s3.Stat && result.Status == 404:
			return nil
		case strings.Contains(result.Message, "BucketAlreadyOwnedByYou"), strings.Contains(result.Message, "BucketAlreadyExists"):
			return nil // another driver was faster
		case !worthRepeating(result), try >= listTries && (result.Kind == s3.KindProtocol || time.Since(begun) > listLimit):
			return fmt.Errorf("bucket %s: %s: %s", request.Bucket, result.Kind, result.Message)
		}
		select {
		case <-time.After(backOff(try)):
		case <-e.Stop:
		}
	}
}
