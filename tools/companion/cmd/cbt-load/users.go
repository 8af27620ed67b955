package main

import (
	"fmt"
	"os"

	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/spec"
)

// users makes each request with the keys of its bucket's owner. Each has connections of its own.
type users struct {
	every []*s3.Client // the first one is of all buckets without keys of their own
	owner map[string]*s3.Client
}

// newUsers takes the keys of the first from `config`, and those of the others from the environment.
func newUsers(orders *spec.Spec, config s3.Config) (*users, error) {
	first, err := s3.New(config)
	if err != nil {
		return nil, err
	}
	u := &users{every: []*s3.Client{first}, owner: map[string]*s3.Client{}}
	clients := map[string]*s3.Client{"": first}
	for _, space := range orders.Spaces {
		if clients[space.Keys] == nil {
			access, secret := "AWS_ACCESS_KEY_ID_"+space.Keys, "AWS_SECRET_ACCESS_KEY_"+space.Keys
			userConfig := config
			userConfig.AccessKey, userConfig.SecretKey, userConfig.Session = os.Getenv(access), os.Getenv(secret), ""
			if userConfig.AccessKey == "" || userConfig.SecretKey == "" {
				return nil, fmt.Errorf("%s and %s must be in the environment: space %s is made with them", access, secret, space.Name)
			}
			if clients[space.Keys], err = s3.New(userConfig); err != nil {
				return nil, err
			}
			u.every = append(u.every, clients[space.Keys])
		}
		u.owner[space.Bucket] = clients[space.Keys]
	}
	return u, nil
}

// Do makes a request.
func (u *users) Do(request *s3.Request, result *s3.Result) {
	if client := u.owner[request.Bucket]; client != nil {
		client.Do(request, result)
		return
	}
	u.every[0].Do(request, result)
}

// Cut ends the requests of all.
func (u *users) Cut() {
	for _, client := range u.every {
		client.Cut()
	}
}

// Hosts is what each host is doing for all of them; one that is up for nobody is down.
func (u *users) Hosts() []s3.HostState {
	states := u.every[0].Hosts()
	for _, client := range u.every[1:] {
		for i, host := range client.Hosts() {
			states[i].InFlight += host.InFlight
			states[i].Up = states[i].Up || host.Up
		}
	}
	return states
}
