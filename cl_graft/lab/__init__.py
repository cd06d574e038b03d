"""The laboratory: experiments, their results, reports and figures; nothing outside imports it."""
