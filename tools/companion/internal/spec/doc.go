// Package spec is what a run of cbt-load is to do, read from JSON. Times are seconds, sizes bytes. All errors are reported
// at once, each with its key. docs/CBT-LOAD.md has examples. The second column is the value of a key that is missing;
// defaults.go has those of the keys without one here.
//
//	version                    1
//	job                        a name, for people
//	hosts                      http://host:port or https://host:port, all of one scheme; without: AWS_ENDPOINT_URL_S3, else
//	                           AWS_ENDPOINT_URL, else endpoint_url of the profile AWS_PROFILE
//	host_select, region,       as in the section s3: of a benchmark, but lookup: host for dns, and no host_select: one.
//	lookup, verify_tls,        The variable SSL_CERT_FILE is its ca_file; region without: AWS_REGION, AWS_DEFAULT_REGION,
//	payload                    else region of the profile
//	deadline, retries,         as in the section cbt_load:; compressible: share of every 4 KiB that is zeros, 0 to 1.
//	list_keys, part_size,      A retried request is one row with its last error
//	compressible, verify,
//	seed
//	workers       1            requests under way at once, at most
//	rate          0            requests/s of this process; 0: closed loop
//	arrivals                   of an open loop: poisson, or even: at equal distances
//	duration      0            from the start, ramp included; 0: no end by time
//	objects       0            the run ends when each space that is written to has had so many successful PUTs (or as many as
//	                           its own `objects` says)
//	ramp          0            workers join one after the other; of an open loop: the rate rises linearly
//	grace                      what is under way at the end gets so long, and is then cut
//	make_buckets  false        makes buckets of numbered spaces that are missing
//	versioned     false        the buckets keep all versions; with make_buckets they are made so
//	encryption    none         c (key: 32 bytes, base64, in CBT_LOAD_SSE_KEY), s3, kms
//	kms_key                    of encryption kms
//	state_in, state_out        files; may be the same
//	sets_n        false        N of each space becomes the numbers used when this run ends
//	spaces                     name, bucket, prefix, numbered, objects, sizes, rebuild, no_deletes, limit, exclude: type Space;
//	                           keys: "2" for AWS_ACCESS_KEY_ID_2 and AWS_SECRET_ACCESS_KEY_2, the same in all spaces of a bucket
//	ops                        op, share, select, absent, spaces: type Op
//	works                      instead of workers, rate, arrivals, ops: several mixes at once, each with these four keys and a
//	                           name; their rows say NAME:GET
package spec
