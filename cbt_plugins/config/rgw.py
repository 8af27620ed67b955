"""`rgw:` -- what RGW has for the length of the run: placement, shards of bucket indexes, threads, user."""

from __future__ import annotations

from typing import Annotated, Any, Dict, Iterator, List, Mapping, Optional

from pydantic import Field

from cbt_plugins import plan
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.key_errors import FieldError, Strict
from cbt_plugins.config.pools import PoolSection
from cbt_plugins.config.s3 import S3Section
from cbt_plugins.plan import RunPool

#: what is kept in OMAP, which erasure coded pools have not
_OMAP = ("index", "extra")


class PlacementSection(Strict):
    """Pools of `pools:` for the buckets of the run's user, whom the run makes."""

    data: str = Field(description="Objects.")
    index: str = Field(description="Bucket indexes; with replicas.")
    extra: Optional[str] = Field(
        None, description="Unfinished multipart uploads; with replicas. Needed where `data` is erasure coded."
    )

    def errors(self, pools: Mapping[str, PoolSection]) -> Iterator[FieldError]:
        """Yield the errors in the pools that it names."""
        for name, key in self.to_plan().items():
            pool = pools.get(key)
            if pool is None:
                hint = did_you_mean(key, pools) or f"; there are: {', '.join(pools) or 'none'}"
                yield FieldError((name,), f"no pool {key!r} under pools:{hint}")
            elif pool.existing or (pool.application or RunPool.application) != RunPool.application:
                yield FieldError((name,), f"{key} must be a pool that the run makes, with application: rgw")
            elif name in _OMAP and pool.ec:
                yield FieldError((name,), f"{key} is erasure coded, and {name} needs a pool with replicas")
        data = pools.get(self.data)
        if data and data.ec and self.extra is None:
            yield FieldError((), "data is erasure coded: give extra: a pool with replicas, for multipart uploads")

    def to_plan(self) -> Dict[str, str]:
        """Return the keys that are given."""
        return {name: key for name, key in self if key is not None}


class RgwSection(Strict):
    """Settings of RGW for the length of the run; restored at its end."""

    placement: Optional[PlacementSection] = Field(None, description="A placement target of the run's own in the zone.")
    index_shards: Optional[Annotated[int, Field(ge=1, le=65521)]] = Field(
        None, description="rgw_override_bucket_index_max_shards of new buckets."
    )
    threads: Optional[Annotated[int, Field(ge=1, le=65536)]] = Field(None, description="rgw_thread_pool_size.")
    make_user: Optional[bool] = Field(
        None, description="Make missing users of `s3:` and `buckets:`. With `placement` all must be missing."
    )

    def errors(self, data: Mapping[str, Any]) -> List[FieldError]:
        """Return the errors of a key beside the section's other keys, which are those without errors."""
        errors: List[FieldError] = []
        s3: Optional[S3Section] = data.get("s3")
        user = self.make_user or self.placement
        if user and s3 and (s3.access_key is not None or s3.profile is not None):
            errors.append(FieldError((), "needs s3: user: it makes the user itself, and its keys"))
        if self.placement and self.make_user is False:
            errors.append(FieldError(("make_user",), "placement is for a user that the run makes"))
        if self.make_user and data.get("keep_data"):
            errors.append(FieldError(("make_user",), "the user is removed with its buckets: not with keep_data: true"))
        if self.placement and data.get("keep_data"):
            errors.append(FieldError(("placement",), "its pools are removed at the end: not with keep_data: true"))
        if self.placement and "pools" in data:
            errors += [e._replace(path=("placement", *e.path)) for e in self.placement.errors(data["pools"])]
        return errors

    def to_plan(self) -> plan.Gateways:
        """Return the plan's part."""
        return plan.Gateways(
            placement=self.placement.to_plan() if self.placement else {},
            index_shards=self.index_shards,
            threads=self.threads,
            make_user=bool(self.make_user or self.placement),
        )
