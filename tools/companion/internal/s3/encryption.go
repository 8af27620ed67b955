package s3

import (
	"crypto/md5"
	"encoding/base64"
	"strings"
)

// Encryption is how the server is asked to encrypt objects; the zero value does not ask.
type Encryption struct {
	ofNew  *extraHeaders // of what makes an object
	ofData *extraHeaders // of what moves its data, or asks for it
}

// extraHeaders are the headers of a request beside those that all have. Their names come after x-amz-security-token.
type extraHeaders struct {
	lines  string // as they are sent
	signed string // as they are signed, each behind a line feed
	names  string // each behind a semicolon
}

const sse = "x-amz-server-side-encryption"

func headersOf(pairs ...string) *extraHeaders {
	var h extraHeaders
	for i := 0; i < len(pairs); i += 2 {
		h.lines += pairs[i] + ": " + pairs[i+1] + "\r\n"
		h.signed += "\n" + pairs[i] + ":" + strings.TrimSpace(pairs[i+1])
		h.names += ";" + pairs[i]
	}
	return &h
}

// ByCustomer is SSE-C: the server forgets the key (32 bytes), so every request for the data brings it along.
func ByCustomer(key []byte) Encryption {
	sum := md5.Sum(key)
	customer := sse + "-customer-"
	h := headersOf(customer+"algorithm", "AES256", customer+"key", base64.StdEncoding.EncodeToString(key),
		customer+"key-md5", base64.StdEncoding.EncodeToString(sum[:]))
	return Encryption{h, h}
}

// ByServer is SSE-S3, or with the name of a key SSE-KMS.
func ByServer(keyID string) Encryption {
	if keyID == "" {
		return Encryption{ofNew: headersOf(sse, "AES256")}
	}
	return Encryption{ofNew: headersOf(sse, "aws:kms", sse+"-aws-kms-key-id", keyID)}
}
