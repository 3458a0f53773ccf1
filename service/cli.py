def main():print("hi")
