"""What an S3 server or boto3 said, as one of our errors: one plain sentence, and what mends it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from botocore import exceptions as boto

from perdure.domain.errors import NoRoom, StoreAway, StoreFailed

ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
CHANGED = frozenset({"412", "PreconditionFailed"})
OUT_OF_RANGE = frozenset({"416", "InvalidRange"})

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_UNKNOWN = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity", "UnrecognizedClientException"}
)
_DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "401", "Unauthorized", "Forbidden"})
_ELSEWHERE = frozenset(
    {"301", "307", "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "TemporaryRedirect"}
)
_FULL = frozenset({"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507", "InsufficientStorage"})
_REFUSED_FOR_NOW = frozenset(
    {"SlowDown", "ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "TooManyRequests", "429"}
)
"""The server says itself that it did nothing."""
_LATER = frozenset({408, 409, 429})
_BROKEN = frozenset({"InternalError", "ServiceUnavailable", "BadDigest", "IncompleteBody", "RequestTimeoutException"})
_NO_CREDENTIALS = (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound)
_OLD_CREDENTIALS = (boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.SSOError)
_RIGHTS = "It needs s3:ListBucket on the bucket and s3:GetObject, s3:PutObject, s3:DeleteObject on what is in it."


def code_of(error: Exception) -> str:
    """S3's own word for it; "" for what no server said."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, boto.ClientError) else ""


def is_about_credentials(error: Exception) -> bool:
    """Whether reading the credentials anew may help."""
    return code_of(error) in _EXPIRED | _UNKNOWN | _DENIED or isinstance(error, _NO_CREDENTIALS + _OLD_CREDENTIALS)


def failure(error: Exception, verb: str, url: str, bucket: str, name: str = "") -> StoreFailed | NoRoom:
    """`error` is botocore's or a broken connection's; `verb` what was tried: read, write, list, delete from."""
    detail = f"{verb} {name or '.'} in {url}: {error}"
    if isinstance(error, boto.ClientError):
        return _answered(error, verb, url, bucket, detail)
    if isinstance(error, _NO_CREDENTIALS):
        return StoreFailed(
            f"There are no credentials for {url}.",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile, or give this machine a role.",
            detail=detail,
        )
    if isinstance(error, _OLD_CREDENTIALS):
        return _expired(url, detail)
    if isinstance(error, boto.SSLError):
        return StoreFailed(
            f"The server of {url} can't show who it is.",
            hint="Is its certificate known here? AWS_CA_BUNDLE names a file.",
            detail=detail,
        )
    if isinstance(error, (boto.ParamValidationError, boto.InvalidRegionError, ValueError)):
        return StoreFailed(
            f"{url} can't be asked for with these settings.",
            hint="Check the endpoint, the region and the bucket's name.",
            detail=detail,
        )
    return StoreAway(
        f"The server of {url} does not answer.",
        hint="Snapshots go on by themselves when it does again.",
        detail=detail,
        unclear=True,
    )


def _answered(error: Any, verb: str, url: str, bucket: str, detail: str) -> StoreFailed | NoRoom:
    code = code_of(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "NoSuchBucket":
        return StoreFailed(f"There is no bucket {bucket}.", hint="Check its name and the endpoint, or make it.", detail=detail)
    if code == "RequestTimeTooSkewed":
        return StoreFailed(
            f"This host's clock is {_off(error)} off, so {url} refuses it.",
            hint="Set it by NTP; then snapshots go on.",
            detail=detail,
        )
    if code in _EXPIRED:
        return _expired(url, detail)
    if code in _UNKNOWN:
        return StoreFailed(
            f"{url} does not accept this host's credentials.",
            hint="Check access key and secret, and that they belong to this endpoint.",
            detail=detail,
        )
    if code in _DENIED:
        return StoreFailed(f"No permission to {verb} {url}.", hint=_RIGHTS, detail=detail)
    if code in _ELSEWHERE:
        return StoreFailed(f"The bucket {bucket} is in another region.", hint="Set s3_region (PERDURE_S3_REGION).", detail=detail)
    if code in _FULL or status == 507:
        return NoRoom(f"There is no space left in {url}.", hint="Make room or use another repository.", detail=detail)
    if code == "NotImplemented" or status == 501:
        return ignores_conditions(url)
    if code in _REFUSED_FOR_NOW or code in _BROKEN or status in _LATER or status >= 500:
        return StoreAway(
            f"The server of {url} has trouble: {code or status}.",
            hint="Snapshots go on by themselves when it is over.",
            detail=detail,
            unclear=code not in _REFUSED_FOR_NOW,
        )
    return StoreFailed(f"Can't {verb} {url}: {code or status}.", hint="The server's log may know more.", detail=detail)


def ignores_conditions(url: str) -> StoreFailed:
    return StoreFailed(
        f"The server of {url} ignores conditional writes, so snapshots would not be safe in it.",
        hint="Use a server that keeps to If-None-Match and If-Match in a PUT, as AWS and MinIO do, or a folder.",
    )


def _expired(url: str, detail: str) -> StoreFailed:
    return StoreFailed(
        f"The credentials for {url} have expired.", hint="Renew them; snapshots go on by themselves then.", detail=detail
    )


def _off(error: Any) -> str:
    """By the server's clock."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        theirs = parsedate_to_datetime(str(headers.get("date", "")))
        return f"{abs((datetime.now(UTC) - theirs).total_seconds()) / 60:.0f} minutes"
    except (TypeError, ValueError):
        return "too far"
