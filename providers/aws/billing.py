"""What AWS's billing says of the account's credits: Billing's GetCredits.

Source: API reference of AWS Billing, GetCredits (`initialAmount`, `remainingAmount`, and `estimatedAmount`, which
counts open bills too). Billing data follows use within a day: AWS Billing User Guide, "Using Cost Explorer".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.aws.client import Service
from providers.base import FundBalance, ProviderError, Refused
from providers.catalogue import micro_usd
from scheduling.model import DurationMs, UnixMs

HOME = "us-east-1"
LAG_MS: DurationMs = 24 * 3_600_000
"""How old the use is at most that a bill does not have yet."""
LOOK_BACK = timedelta(days=364)
"""GetCredits takes a start at most one year ago."""


async def balance(billing: Service, sts: Service, credit: str | None, now_ms: UnixMs) -> FundBalance:
    """Spend of the credit of that id, or of all that are enabled. One request each, never repeated."""
    account = (await sts.call(HOME, "get_caller_identity"))["Account"]
    since = datetime.fromtimestamp(now_ms / 1000, UTC) - LOOK_BACK
    try:
        answer = await billing.call(HOME, "get_credits", accountId=account, startDate=since)
    except ProviderError as error:
        if isinstance(error.__cause__, AttributeError):
            raise Refused("this boto3 does not know Billing's GetCredits: install a newer one") from error
        raise
    found = [
        each for each in answer["credits"] if each["creditId"] == credit or (credit is None and _counts(each))
    ]
    if not found:
        known = ", ".join(each["creditId"] for each in answer["credits"]) or "none"
        wanted = f"the credit {credit}" if credit else "an enabled credit"
        raise Refused(f"account {account} does not have {wanted} (it has: {known})")
    return FundBalance(sum(micro_usd(str(_used(each))) for each in found), now_ms - LAG_MS)


def _counts(credit: Mapping[str, Any]) -> bool:
    return bool(credit.get("creditStatus") != "DISABLED" and credit["initialAmount"]["currencyCode"] == "USD")


def _used(credit: Mapping[str, Any]) -> Decimal:
    """Dollars. Refuses other currencies."""
    left = credit.get("estimatedAmount") or credit["remainingAmount"]
    if (currency := credit["initialAmount"]["currencyCode"]) != "USD":
        raise Refused(f"credit {credit['creditId']} is in {currency}; a fund is in USD")
    # a credit may be written as a negative amount of a bill
    first, rest = (abs(Decimal(amount["currencyAmount"])) for amount in (credit["initialAmount"], left))
    return max(Decimal(0), first - rest)
